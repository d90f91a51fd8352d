"""Attention of one token a sequence: keys split over CTAs, parts combined, today and with FIBER."""
