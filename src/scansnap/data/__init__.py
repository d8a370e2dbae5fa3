"""What sequences are: sequence classes, synthetic settings, sampling, text."""
