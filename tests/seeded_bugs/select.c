// Linked behind all kernels, so that this runs when they are registered, and before main.
void seeded_select(void);

__attribute__((constructor)) static void choose(void) {
    seeded_select();
}
