"""What a run takes, said before it starts. No torch here."""
