"""Parts of Llama models, and whole ones, as sequences of launches."""
