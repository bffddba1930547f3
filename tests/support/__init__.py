"""What the tests share: running glovebox as root or as a user, and counting what it leaves behind."""
