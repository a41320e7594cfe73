"""Cross-validate a model of scikit-learn that uses OpenMP, in one worker per CPU."""

from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import cross_val_score

data, labels = make_classification(n_samples=2000, n_features=20, random_state=0)
print(cross_val_score(HistGradientBoostingClassifier(max_iter=60), data, labels, cv=4, n_jobs=-1))
