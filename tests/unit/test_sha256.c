#include "base/sha256.h"
#include "tap.h"

static const struct {
        const char *text, *hex;
} vectors[] = {
        { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
        { "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrs"
          "mnopqrstnopqrstu",
          "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1" },
};

int main(void) {
        char hex[65], whole[65];
        for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
                is_text(sha256_hex(vectors[i].text, strlen(vectors[i].text), hex), vectors[i].hex,
                        "known vector of %zu bytes", strlen(vectors[i].text));
        static char many[1000000];
        memset(many, 'a', sizeof(many));
        is_text(sha256_hex(many, sizeof(many), hex), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
                "a million times a");

        /* Every length around the block size, in two pieces, gives what one piece gives. */
        int same = 1;
        for (size_t size = 0; size < 200; size++) {
                struct sha256 sha;
                uint8_t digest[SHA256_SIZE];
                sha256_init(&sha);
                sha256_add(&sha, many, size / 3);
                sha256_add(&sha, many, size - size / 3);
                sha256_finish(&sha, digest);
                sha256_hex(many, size, whole);
                for (size_t i = 0; i < SHA256_SIZE; i++) {
                        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
                }
                same &= strcmp(hex, whole) == 0;
        }
        ok(same, "pieces make the same digest as the whole");
        return done_testing();
}
