#include "base/json_scan.h"

#include <string.h>

enum state {
        STATE_VALUE,        /* a value must come */
        STATE_FIRST_VALUE,  /* a value or ] */
        STATE_FIRST_KEY,    /* a key or } */
        STATE_KEY,          /* a key must come */
        STATE_COLON,
        STATE_AFTER,        /* , or the end of the array or object */
        STATE_STRING,
        STATE_ESCAPE,
        STATE_HEX,
        STATE_PAIR_ESCAPE,  /* the backslash of a second half must come */
        STATE_PAIR_U,
        STATE_LITERAL,
        STATE_MINUS,        /* the first digit must come */
        STATE_ZERO,         /* no digit may follow */
        STATE_DIGITS,
        STATE_POINT,        /* a digit must come */
        STATE_FRACTION,
        STATE_EXPONENT,     /* a sign or a digit must come */
        STATE_EXPONENT_SIGN,/* a digit must come */
        STATE_EXPONENT_DIGITS,
        STATE_DONE,
};

void json_scan_start(struct json_scan *scan, const char *const *wanted) {
        *scan = (struct json_scan) { .wanted = wanted, .state = STATE_VALUE, .current = -1 };
}

static bool is_in_object(const struct json_scan *scan) {
        uint32_t level = scan->depth - 1;
        return scan->depth > 0 && scan->is_object[level / 64] >> (level % 64) & 1;
}

/* `end` is just behind the value. */
static void end_value(struct json_scan *scan, size_t end) {
        if (scan->depth == 1 && scan->current >= 0) {
                scan->found[scan->current].at = scan->value_at;
                scan->found[scan->current].size = end - scan->value_at;
                scan->current = -1;
        }
        scan->state = scan->depth == 0 ? STATE_DONE : STATE_AFTER;
}

static bool open_level(struct json_scan *scan, bool is_object) {
        if (scan->depth == JSON_SCAN_DEPTH_MAX)
                return false;
        uint64_t bit = (uint64_t) 1 << (scan->depth % 64), *word = &scan->is_object[scan->depth / 64];
        *word = is_object ? *word | bit : *word & ~bit;
        scan->depth++;
        scan->state = is_object ? STATE_FIRST_KEY : STATE_FIRST_VALUE;
        return true;
}

static bool close_level(struct json_scan *scan, bool is_object) {
        if (scan->depth == 0 || is_in_object(scan) != is_object)
                return false;
        scan->depth--;
        end_value(scan, scan->at + 1);
        return true;
}

static void begin_string(struct json_scan *scan, bool in_key) {
        scan->in_key = in_key;
        scan->key_size = 0;
        scan->state = STATE_STRING;
}

static bool begin_literal(struct json_scan *scan, const char *rest) {
        scan->literal = rest;
        scan->state = STATE_LITERAL;
        return true;
}

static bool begin_value(struct json_scan *scan, unsigned char byte) {
        if (scan->depth == 1)
                scan->value_at = scan->at;
        switch (byte) {
        case '{':
                return open_level(scan, true);
        case '[':
                return open_level(scan, false);
        case '"':
                begin_string(scan, false);
                return true;
        case 't':
                return begin_literal(scan, "rue");
        case 'f':
                return begin_literal(scan, "alse");
        case 'n':
                return begin_literal(scan, "ull");
        case '-':
                scan->state = STATE_MINUS;
                return true;
        case '0':
                scan->state = STATE_ZERO;
                return true;
        default:
                scan->state = STATE_DIGITS;
                return byte >= '1' && byte <= '9';
        }
}

/* A key has ended: is its value wanted? */
static bool end_key(struct json_scan *scan) {
        scan->state = STATE_COLON;
        if (scan->depth != 1)
                return true;
        scan->current = -1;
        for (int i = 0; scan->wanted[i]; i++) {
                if (scan->key_size != strlen(scan->wanted[i]) ||
                    memcmp(scan->key, scan->wanted[i], scan->key_size) != 0)
                        continue;
                if (scan->found[i].size > 0)
                        return false; /* which of the two would be meant? */
                scan->current = i;
        }
        return true;
}

/* ---- strings ---- */

static void note_key_byte(struct json_scan *scan, char byte) {
        if (scan->in_key && scan->depth == 1 && scan->key_size < JSON_SCAN_KEY_MAX)
                scan->key[scan->key_size++] = byte;
}

/* The first byte of a character that has more than one; RFC 3629 bounds the second. */
static bool begin_character(struct json_scan *scan, unsigned char byte) {
        scan->utf8_low = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
        scan->utf8_high = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
        scan->utf8_left = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
        return byte >= 0xc2 && byte <= 0xf4;
}

static bool continue_character(struct json_scan *scan, unsigned char byte) {
        if (byte < scan->utf8_low || byte > scan->utf8_high)
                return false;
        scan->utf8_low = 0x80;
        scan->utf8_high = 0xbf;
        scan->utf8_left--;
        return true;
}

static bool take_string_byte(struct json_scan *scan, unsigned char byte) {
        if (scan->utf8_left > 0)
                return continue_character(scan, byte);
        if (byte == '"') {
                if (scan->in_key)
                        return end_key(scan);
                end_value(scan, scan->at + 1);
                return true;
        }
        if (byte == '\\') {
                scan->state = STATE_ESCAPE;
                scan->key_size = JSON_SCAN_KEY_MAX;
                return true;
        }
        note_key_byte(scan, (char) byte);
        return byte >= 0x80 ? begin_character(scan, byte) : byte >= ' ';
}

static bool take_escape(struct json_scan *scan, unsigned char byte) {
        scan->state = STATE_STRING;
        if (byte != 'u')
                return byte && strchr("\"\\/bfnrt", byte);
        scan->state = STATE_HEX;
        scan->hex_left = 4;
        scan->unit = 0;
        return true;
}

static bool end_unit(struct json_scan *scan) {
        bool is_low = (scan->unit & 0xfc00) == 0xdc00, is_high = (scan->unit & 0xfc00) == 0xd800;
        if (scan->high_unit ? !is_low : is_low)
                return false;
        scan->high_unit = is_high ? scan->unit : 0;
        scan->state = is_high ? STATE_PAIR_ESCAPE : STATE_STRING;
        return scan->unit != 0 || !scan->in_key; /* names with NUL are refused by many readers */
}

static bool take_hex(struct json_scan *scan, unsigned char byte) {
        int digit = byte >= '0' && byte <= '9'   ? byte - '0'
                    : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10
                    : byte >= 'A' && byte <= 'F' ? byte - 'A' + 10
                                                 : -1;
        if (digit < 0)
                return false;
        scan->unit = (uint16_t) (scan->unit << 4 | digit);
        return --scan->hex_left > 0 || end_unit(scan);
}

/* ---- what stands between ---- */

static bool is_space(unsigned char byte) {
        return byte == ' '; /* no line ends: it may become a line of a stream */
}

static bool take_between(struct json_scan *scan, unsigned char byte) {
        if (is_space(byte))
                return true;
        switch ((enum state) scan->state) {
        case STATE_VALUE:
                return begin_value(scan, byte);
        case STATE_FIRST_VALUE:
                return byte == ']' ? close_level(scan, false) : begin_value(scan, byte);
        case STATE_FIRST_KEY:
                if (byte == '}')
                        return close_level(scan, true);
                begin_string(scan, true);
                return byte == '"';
        case STATE_KEY:
                begin_string(scan, true);
                return byte == '"';
        case STATE_COLON:
                scan->state = STATE_VALUE;
                return byte == ':';
        case STATE_AFTER:
                if (byte != ',')
                        return (byte == '}' || byte == ']') && close_level(scan, byte == '}');
                scan->state = is_in_object(scan) ? STATE_KEY : STATE_VALUE;
                return true;
        default:
                return false; /* something behind the end */
        }
}

/* ---- numbers: they end where something else begins ---- */

static bool is_digit(unsigned char byte) {
        return byte >= '0' && byte <= '9';
}

static bool end_number(struct json_scan *scan, unsigned char byte) {
        end_value(scan, scan->at);
        return take_between(scan, byte);
}

static bool json_scan_become(struct json_scan *scan, enum state state) {
        scan->state = (int) state;
        return true;
}

static bool take_number_byte(struct json_scan *scan, unsigned char byte) {
        bool digit = is_digit(byte), exponent = byte == 'e' || byte == 'E';
        switch ((enum state) scan->state) {
        case STATE_MINUS:
                return digit && json_scan_become(scan, byte == '0' ? STATE_ZERO : STATE_DIGITS);
        case STATE_ZERO:
        case STATE_DIGITS:
                if (digit)
                        return scan->state == STATE_DIGITS;
                return byte == '.' ? json_scan_become(scan, STATE_POINT)
                       : exponent  ? json_scan_become(scan, STATE_EXPONENT)
                                   : end_number(scan, byte);
        case STATE_POINT:
                return digit && json_scan_become(scan, STATE_FRACTION);
        case STATE_FRACTION:
                return digit ? true : exponent ? json_scan_become(scan, STATE_EXPONENT) : end_number(scan, byte);
        case STATE_EXPONENT:
                if (byte == '+' || byte == '-')
                        return json_scan_become(scan, STATE_EXPONENT_SIGN);
                return digit && json_scan_become(scan, STATE_EXPONENT_DIGITS);
        case STATE_EXPONENT_SIGN:
                return digit && json_scan_become(scan, STATE_EXPONENT_DIGITS);
        default:
                return digit || end_number(scan, byte);
        }
}

static bool take_literal(struct json_scan *scan, unsigned char byte) {
        if ((unsigned char) *scan->literal != byte)
                return false;
        if (*++scan->literal == '\0')
                end_value(scan, scan->at + 1);
        return true;
}

static bool json_scan_take(struct json_scan *scan, unsigned char byte) {
        switch ((enum state) scan->state) {
        case STATE_STRING:
                return take_string_byte(scan, byte);
        case STATE_ESCAPE:
                return take_escape(scan, byte);
        case STATE_HEX:
                return take_hex(scan, byte);
        case STATE_PAIR_ESCAPE:
                scan->state = STATE_PAIR_U;
                return byte == '\\';
        case STATE_PAIR_U:
                return byte == 'u' && take_escape(scan, byte);
        case STATE_LITERAL:
                return take_literal(scan, byte);
        case STATE_MINUS:
        case STATE_ZERO:
        case STATE_DIGITS:
        case STATE_POINT:
        case STATE_FRACTION:
        case STATE_EXPONENT:
        case STATE_EXPONENT_SIGN:
        case STATE_EXPONENT_DIGITS:
                return take_number_byte(scan, byte);
        default:
                return take_between(scan, byte);
        }
}

/* Most of what is large is plain text. */
static size_t count_plain(const char *bytes, size_t size) {
        size_t n = 0;
        while (n < size && (signed char) bytes[n] >= ' ' && bytes[n] != '"' && bytes[n] != '\\')
                n++;
        return n;
}

bool json_scan_feed(struct json_scan *scan, const char *bytes, size_t size) {
        for (size_t i = 0; i < size && !scan->failed;) {
                if (scan->state == STATE_STRING && !scan->in_key && scan->utf8_left == 0) {
                        size_t plain = count_plain(bytes + i, size - i);
                        i += plain;
                        scan->at += plain;
                        if (i == size)
                                break;
                }
                scan->failed = !json_scan_take(scan, (unsigned char) bytes[i++]);
                scan->at++;
        }
        return !scan->failed;
}

bool json_scan_is_object(const struct json_scan *scan) {
        /* An object's own bit is still there; nothing else can have set it at depth 0. */
        return !scan->failed && scan->state == STATE_DONE && scan->is_object[0] & 1;
}
