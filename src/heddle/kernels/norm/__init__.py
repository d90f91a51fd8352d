"""Root-mean-square normalisation of rows, as the layers of Llama begin."""
