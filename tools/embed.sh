#!/bin/sh
# embed.sh FILE OUTPUT NAME HEADER: a C file that carries FILE's bytes as NAME (declared in HEADER, see
# src/box/agent_image.h).
cat > "$2" <<END
#include "$4"
__asm__(".section .rodata\n"
        ".balign 16\n"
        ".global $3\n"
        "$3: .incbin \"$1\"\n"
        ".global ${3}_end\n"
        "${3}_end: .byte 0\n"
        ".previous\n");
END
