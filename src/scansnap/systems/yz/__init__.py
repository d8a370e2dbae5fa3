"""The paper's system: decoder Y and attention logits Z."""
