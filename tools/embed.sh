#!/bin/sh
# embed.sh FILE OUTPUT: a C file that carries FILE's bytes as agent_image (see src/box/agent_image.h).
cat > "$2" <<END
#include "box/agent_image.h"
__asm__(".section .rodata\n"
        ".balign 16\n"
        ".global agent_image\n"
        "agent_image: .incbin \"$1\"\n"
        ".global agent_image_end\n"
        "agent_image_end: .byte 0\n"
        ".previous\n");
END
