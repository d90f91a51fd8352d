"""Tables for people that put several results side by side."""
