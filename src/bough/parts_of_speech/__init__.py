"""Parts of speech: which word is a noun, which a verb, for an encoder that is to see it."""
