/* Joins the mappings of libraries that are only read or executed. */
#pragma once

/* One mapping for each library where there are three (its headers, its code, its constants): all of it may be read and
 * executed then. What could not be joined stays as it was. */
void merge_mappings(void);
