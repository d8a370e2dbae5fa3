"""The data: sequence classes, synthetic settings, sampling, text."""
