/* Pictures in a terminal that can show them: the protocols of kitty and iTerm2, and sixel. */
#pragma once

enum inline_image_kind { INLINE_IMAGE_NONE, INLINE_IMAGE_KITTY, INLINE_IMAGE_ITERM, INLINE_IMAGE_SIXEL };

/* The protocol of standard output: $GLOVEBOX_FIGURES (kitty, iterm, sixel, none), or by the variables of the terminal.
 * */
enum inline_image_kind inline_image_choose(void);

/* The bytes that show this PNG (base64, untrusted: it is checked), to be freed; NULL if it cannot be shown. */
char *inline_image_make(enum inline_image_kind kind, const char *base64);
