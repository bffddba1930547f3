int verb_doctor(int argc, char **argv); int verb_doctor(int argc, char **argv){(void)argc;(void)argv;return 0;}
