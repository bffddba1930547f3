/* Joins the mappings of libraries that are only read or executed. */
#pragma once

/* One mapping for each library where there are three (its headers, its code, its constants): all of it may be read and
 * executed then. Mappings that could not be joined stay as they were. */
void merge_mappings(void);
