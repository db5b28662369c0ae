"""Training of models: the document, one training with Spark, the decision between models, and publication."""
