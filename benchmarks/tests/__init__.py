"""How long the tests take, ring by ring, and where that time goes."""
