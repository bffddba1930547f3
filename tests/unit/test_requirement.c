/* Which texts may become arguments of pip: everything that the packaging grammar calls a requirement by name, and
 * nothing that pip would read as an option, a path, a file or an address. */
#include "base/memory.h"
#include "store/requirement.h"
#include "tap.h"

static const char *const good[] = {
        "humanize",
        "A",
        "attrs>=23",
        "attrs >= 23 , != 24.1",
        "zope.interface==6.*",
        "typing_extensions~=4.9.0",
        "torch===2.1+cpu",
        "pkg==1!2.0.post1.dev3",
        "requests[socks]",
        "requests[socks, security] >= 2.31",
        "requests[]",
        "name (>=1, <2)",
        "name<=3;python_version<'3.13'",
        "name; python_version >= \"3.8\" and (os_name == 'posix' or sys_platform != 'win32')",
        "name[a]>=1; 'linux' in sys_platform",
        "name; platform_machine not in 'arm64 x'",
        "name; extra == 'a/b@c'",
};

static const char *const bad[] = {
        "",
        " ",
        "-r",
        "--index-url=http://x",
        "-e.",
        ".",
        "..",
        "./name",
        "/tmp/name",
        "name/../other",
        "name @ https://example.org/name.whl",
        "name@file:///etc/passwd",
        "https://example.org/name",
        "git+https://example.org/name",
        "name.whl",
        "name-1.0-py3-none-any.WHL",
        "name.tar.gz[extra]",
        "name==1.zip",
        "name.zip ; os_name == 'posix'",
        "name --global-option=x",
        "name -r file",
        "name\n-r file",
        "name;",
        "name; os_name",
        "name; os_name == ",
        "name; home == 'x'",
        "name; os_name == 'posix",
        "name; (os_name == 'posix'",
        "name; os_name == 'posix')",
        "name; os_name == 'posix' # comment",
        "name>=",
        "name>=1,",
        "name=>1",
        "name=1",
        "name 1.0",
        "name other",
        "[extra]",
        "name[extra",
        "name[-x]",
        "name-",
        "-name",
        "_name",
        "n\xc3\xa4me",
        "name==${HOME}",
        "name==$(id)",
        "name\\",
        "name; ((((((((((os_name == 'posix'))))))))))",
};

int main(void) {
        struct err err;
        for (size_t i = 0; i < ELEMENTS(good); i++)
                ok(requirement_check(good[i], &err) == 0, "is taken: %s", good[i]);
        for (size_t i = 0; i < ELEMENTS(bad); i++) {
                err = (struct err) { 0 };
                ok(requirement_check(bad[i], &err) < 0 && err.code == ERR_USAGE && strstr(err.message, "attrs>=23"),
                   "is refused, number %zu", i);
        }
        char text[REQUIREMENT_MAX + 2];
        memset(text, 'a', sizeof(text));
        text[REQUIREMENT_NAME_MAX] = '\0';
        ok(requirement_check(text, &err) == 0, "a name as long as it may be");
        text[REQUIREMENT_NAME_MAX] = 'a';
        text[REQUIREMENT_NAME_MAX + 1] = '\0';
        ok(requirement_check(text, &err) < 0, "a name that is too long");
        memset(text, ' ', sizeof(text));
        text[0] = 'a';
        text[REQUIREMENT_MAX] = '\0';
        ok(requirement_check(text, &err) == 0, "a requirement as long as it may be");
        text[REQUIREMENT_MAX] = ' ';
        text[REQUIREMENT_MAX + 1] = '\0';
        ok(requirement_check(text, &err) < 0, "a requirement that is too long");
        return done_testing();
}
