"""Which tokens will win a query's attention: said from the text before training, and compared with what was learned."""
