"""Floor 4: values → what people and programs read; nothing here knows where values come from."""
