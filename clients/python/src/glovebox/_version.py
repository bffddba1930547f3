"""The version of this package: that of the program that it connects to."""

VERSION = "0.1.0"
