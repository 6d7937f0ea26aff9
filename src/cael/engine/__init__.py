"""One path from a log to an answer: columns, scores, what is kept of the rows, passes."""
