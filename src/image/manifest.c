#include "image/manifest.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/memory.h"
#include "image/digest.h"
#include "image/path.h"
#include "image/record.h"

enum { INDEX_DEPTH = 4 }; /* an index may name an index; two are seen in practice */

static int read_document(const struct archive *archive, const char *name, json_t **ret_json, struct err *err) {
        char shown[204], clean[BOUND_PATH + 1];
        path_for_message(name, shown);
        if (path_clean(name, clean, err) < 0)
                return -1;
        const struct archive_member *member = archive_find(archive, clean);
        if (!member)
                return err_set(err, ERR_PROTOCOL, "the archive lacks its document \"%s\"; save the image again", shown);
        if (member->size > BOUND_JSON)
                return err_set(err, ERR_LIMIT, "the archive's document \"%s\" is larger than %d MiB", shown,
                               BOUND_JSON >> 20);
        if (digest_check(archive, member, clean, err) < 0)
                return -1;
        _cleanup_(stream_free) struct stream *stream = NULL;
        if (archive_open_member(archive, member, &stream, err) < 0)
                return -1;
        _cleanup_free_ char *bytes = malloc(BOUND_JSON);
        if (!bytes)
                return err_sys(err, ENOMEM, "cannot read the archive");
        ssize_t n = stream_read(stream, bytes, BOUND_JSON, err);
        return n < 0 ? -1 : record_parse(bytes, (size_t) n, shown, ret_json, err);
}

static int add_layer(struct archive *archive, const char *name, struct err *err) {
        char shown[204], clean[BOUND_PATH + 1];
        if (path_clean(name, clean, err) < 0)
                return -1;
        const struct archive_member *member = archive_find(archive, clean);
        if (!member)
                return err_set(err, ERR_PROTOCOL, "the archive lacks its layer \"%s\"; save the whole image again",
                               path_for_message(name, shown));
        if (archive->n_layers == BOUND_LAYERS)
                return err_set(err, ERR_LIMIT, "the image has more than %d layers", BOUND_LAYERS);
        if (digest_check(archive, member, clean, err) < 0)
                return -1;
        archive->layers[archive->n_layers++] = member;
        return 0;
}

static void note_reference(struct archive *archive, const char *reference) {
        char shown[204];
        (void) snprintf(archive->reference, sizeof(archive->reference), "%s", path_for_message(reference, shown));
}

int manifest_read_docker(struct archive *archive, struct err *err) {
        _cleanup_json_ json_t *manifest = NULL;
        if (read_document(archive, "manifest.json", &manifest, err) < 0)
                return -1;
        if (json_array_size(manifest) != 1)
                return err_set(
                        err, ERR_UNSUPPORTED,
                        "the archive's manifest.json names %zu images, and one is wanted; save one image at a time",
                        json_array_size(manifest));
        const json_t *image = json_array_get(manifest, 0), *layers = json_object_get(image, "Layers");
        if (!json_is_array(layers))
                return err_set(err, ERR_PROTOCOL, "the archive's manifest.json names no layers; save the image again");
        size_t i;
        json_t *layer;
        json_array_foreach (layers, i, layer) {
                if (!json_is_string(layer))
                        return err_set(err, ERR_PROTOCOL, "the archive's manifest.json is malformed");
                if (add_layer(archive, json_string_value(layer), err) < 0)
                        return -1;
        }
        const char *tag = json_string_value(json_array_get(json_object_get(image, "RepoTags"), 0));
        note_reference(archive, tag ? tag : "");
        const char *config = record_string(image, "Config");
        return *config ? read_document(archive, config, &archive->config, err) : 0;
}

/* "sha256:HEX" lies at blobs/sha256/HEX. */
static int blob_name(const json_t *descriptor, char ret_name[static 256], struct err *err) {
        const char *digest = record_string(descriptor, "digest");
        const char *colon = strchr(digest, ':');
        bool good =
                colon && colon > digest && colon - digest <= 32 && strlen(colon + 1) >= 32 && strlen(colon + 1) <= 128;
        for (const char *at = digest; good && *at; at++)
                good = at == colon || isalnum((unsigned char) *at);
        if (!good)
                return err_set(err, ERR_PROTOCOL, "the archive has a malformed digest; save the image again");
        (void) snprintf(ret_name, 256, "blobs/%.*s/%s", (int) (colon - digest), digest, colon + 1);
        return 0;
}

static const char *our_architecture(void) {
        static const struct {
                const char *machine, *oci;
        } names[] = { { "x86_64", "amd64" }, { "aarch64", "arm64" }, { "armv7l", "arm" }, { "i686", "386" } };
        static struct utsname system;
        if (uname(&system) < 0)
                return "";
        for (size_t i = 0; i < ELEMENTS(names); i++)
                if (strcmp(names[i].machine, system.machine) == 0)
                        return names[i].oci;
        return system.machine;
}

/* The manifest for this machine; an index of one needs not say what it is for. Attestations say "unknown". */
static const json_t *choose_manifest(const json_t *index) {
        const json_t *manifests = json_object_get(index, "manifests");
        size_t i;
        json_t *descriptor;
        json_array_foreach (manifests, i, descriptor) {
                const json_t *platform = json_object_get(descriptor, "platform");
                if (strcmp(record_string(platform, "os"), "linux") == 0 &&
                    strcmp(record_string(platform, "architecture"), our_architecture()) == 0)
                        return descriptor;
        }
        const json_t *only = json_array_size(manifests) == 1 ? json_array_get(manifests, 0) : NULL;
        return json_object_get(only, "platform") ? NULL : only;
}

static int read_oci_manifest(struct archive *archive, const json_t *manifest, struct err *err) {
        char name[256];
        size_t i;
        json_t *layer;
        json_array_foreach (json_object_get(manifest, "layers"), i, layer) {
                if (blob_name(layer, name, err) < 0 || add_layer(archive, name, err) < 0)
                        return -1;
        }
        const json_t *config = json_object_get(manifest, "config");
        if (!config)
                return 0;
        return blob_name(config, name, err) < 0 ? -1 : read_document(archive, name, &archive->config, err);
}

int manifest_read_oci(struct archive *archive, struct err *err) {
        _cleanup_json_ json_t *document = NULL;
        if (read_document(archive, "index.json", &document, err) < 0)
                return -1;
        for (int depth = 0; json_is_array(json_object_get(document, "manifests")); depth++) {
                const json_t *descriptor = choose_manifest(document);
                char name[256];
                if (!descriptor || depth == INDEX_DEPTH)
                        return err_set(
                                err, ERR_UNSUPPORTED,
                                "the archive holds %zu images and none is plainly for linux/%s; export one image "
                                "for this platform",
                                json_array_size(json_object_get(document, "manifests")), our_architecture());
                const json_t *notes = json_object_get(descriptor, "annotations");
                const char *reference = record_string(notes, "org.opencontainers.image.ref.name");
                if (*reference)
                        note_reference(archive, reference);
                if (blob_name(descriptor, name, err) < 0)
                        return -1;
                json_t *next = NULL;
                if (read_document(archive, name, &next, err) < 0)
                        return -1;
                json_decref(document);
                document = next;
        }
        if (!json_is_array(json_object_get(document, "layers")))
                return err_set(err, ERR_PROTOCOL, "the archive's manifest names no layers; export the image again");
        return read_oci_manifest(archive, document, err);
}
