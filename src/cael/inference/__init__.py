"""From scores to estimates: weights, standard errors, intervals, diagnostics, lift, overlap."""
