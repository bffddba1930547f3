/* Completion scripts for shells other than bash, from the same tables. */
#pragma once

void completion_print_zsh(void);
void completion_print_fish(void);
