// A plugin of qemu-user: prints how many instructions a program ran to stderr, as its last line.
#include <stdint.h>
#include <stdio.h>

// of qemu-plugin.h, which not all packages of qemu bring
typedef uint64_t Id;
struct qemu_plugin_tb;
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb * block);
void qemu_plugin_register_vcpu_tb_trans_cb(Id id, void (*call)(Id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb * block, int add, void * to, uint64_t n);
void qemu_plugin_register_atexit_cb(Id id, void (*call)(Id, void *), void * data);

int qemu_plugin_version = 1;
static uint64_t n_instructions;

static void translated(Id id, struct qemu_plugin_tb * block) {
    (void) id;
    qemu_plugin_register_vcpu_tb_exec_inline(block, 0, &n_instructions, qemu_plugin_tb_n_insns(block));
}

static void ended(Id id, void * data) {
    (void) id, (void) data;
    fprintf(stderr, "\n%llu\n", (unsigned long long) n_instructions);
}

int qemu_plugin_install(Id id, const void * info, int n_words, char ** words) {
    (void) info, (void) n_words, (void) words;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
