/* JSON Schema as C text, for the tables. */
/* Tables: clang-format would break them in the middle of a row. */
/* clang-format off */
#pragma once

#define TEXT "{\"type\":\"string\"}"
#define NUMBER "{\"type\":\"number\"}"
#define INTEGER "{\"type\":\"integer\"}"
#define TRUTH "{\"type\":\"boolean\"}"
#define OBJECT(members) "{\"type\":\"object\",\"properties\":{" members "}}"
#define ARRAY(items) "{\"type\":\"array\",\"items\":" items "}"
#define SAID(type, words) "{\"type\":\"" type "\",\"description\":\"" words "\"}"
#define REF(name) "{\"$ref\":\"#/components/schemas/" name "\"}"
