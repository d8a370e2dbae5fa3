"""Public names and commands that earlier versions had, and what replaces each."""

REMOVED_NAMES = {
    "Counts": "use classes_from_text for sequence classes of a text, context_words for its words",
    "Finding": "test each word with scipy.stats.fisher_exact, or use scansnap 0.1",
    "NAMED": "it is NAMED_CLASSES",
    "NextToken": "import it from scansnap.papers.selection",
    "PREDICTORS": "train (Y, Z) on the text with train_text(corpus, model='yz'), or use scansnap 0.1",
    "PredictOptions": "train (Y, Z) on the text with train_text(corpus, model='yz'), or use scansnap 0.1",
    "Predictor": "train (Y, Z) on the text with train_text(corpus, model='yz'), or use scansnap 0.1",
    "Reading": "train (Y, Z) on the text with train_text(corpus, model='yz'), or use scansnap 0.1",
    "Shortcuts": "test each word with scipy.stats.fisher_exact, or use scansnap 0.1",
    "TokenSelection": "import it from scansnap.papers.selection",
    "classes_from_counts": "use classes_from_text",
    "count_corpus": "use classes_from_text for sequence classes of a text, context_words for its words",
    "predict": "train (Y, Z) on the text with train_text(corpus, model='yz'), or use scansnap 0.1",
    "read_counts": "use classes_from_text for sequence classes of a text, or scansnap 0.1 to read counts",
    "score_prediction": "train (Y, Z) on the text with train_text(corpus, model='yz'), or use scansnap 0.1",
    "shortcuts": "test each word with scipy.stats.fisher_exact, or use scansnap 0.1",
}

REMOVED_COMMANDS = {
    "corpus": "use scansnap text classes for the sequence classes of a text",
    "corpus classes": "use scansnap text classes",
    "corpus count": "use scansnap text classes for the sequence classes of a text",
    "corpus predict": "use scansnap text train --model yz, which trains (Y, Z) on the text",
    "corpus show": "use ss.context_words in Python, or scansnap text classes",
    "shortcuts": "test each word with scipy.stats.fisher_exact, or use scansnap 0.1",
    "watch demo": "run python docs/watch_demo.py in a clone of scansnap",
}
