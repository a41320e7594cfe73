/* A 32-bit program for x86 that needs no library: it binds itself to one CPU, and becomes `grep`. */
static unsigned mask[32] = {[CPU / 32] = 1u << CPU % 32};
static const char *words[] = {"/bin/grep", "Cpus_allowed_list", "/proc/self/status", 0};

static void call(long number, const void *first, const void *second, const void *third)
{
    __asm__ volatile("int $0x80" : "+a"(number) : "b"(first), "c"(second), "d"(third) : "memory");
}

void _start(void)
{
    call(241, 0, (void *)sizeof mask, mask); /* sched_setaffinity */
    call(11, words[0], words, 0);            /* execve */
}
