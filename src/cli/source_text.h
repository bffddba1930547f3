/* Source code as UTF-8 text: a byte order mark is removed, and a coding line ("# -*- coding: latin-1 -*-") is obeyed.
 * */
#pragma once

#include "cli/run_request.h"

int source_text_decode(struct run_request *request, struct err *err);
