"""What assets need from outside: storage, engine, tracking, the trainer's launcher."""
