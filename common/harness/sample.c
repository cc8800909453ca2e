// A sample of the SMs gets its share of the L2. The blocks of a head read the same K and V (in the
// backward pass Q and dO, and they add to the same sums for dQ): on the whole GPU the L2 holds these
// for all the heads that run at once. A share that doesn't hold them for one head would have every
// block fetch them again, and HBM bytes that no GPU shows.
#include "harness/sample.h"

// Bytes that the blocks of one head share, as the device's buffers have them.
static double head_bytes(const Problem *p, bool backward) {
    static const int sizes[] = {
        [DTYPE_FP32] = 4, [DTYPE_FP16] = 2, [DTYPE_BF16] = 2, [DTYPE_FP8] = 1};
    enum { SUM_BYTES = 4 };
    double size = sizes[p->dtype];
    double keys = 2 * size * (double)p->seqlen_k * p->built_head_dim;
    double queries = (2 * size + SUM_BYTES) * (double)p->seqlen_q * p->built_head_dim;
    return backward && queries > keys ? queries : keys;
}

// The fewest SMs whose share of the L2 holds that many bytes and a quarter more, since outputs pass
// through it too. 0: not even all of it does, so the whole GPU fetches again just as a sample does.
static int fewest_sms(const Device *d, double bytes) {
    double share = (double)d->l2_bytes / d->sms;
    for (int n = 1; n <= d->sms; n++) {
        if (share * n >= 1.25 * bytes) return n;
    }
    return 0;
}

bool sample_fit(Run *run, Message *message) {
    const Device *d = run->device;
    Problem *timed = &run->timed;
    if (d->softgpu == NULL || d->sms == 0) return true;
    if (run->options->sample != NOT_GIVEN && run->options->sample > d->sms) {
        return refuse(message, "--sample %d: the modelled GPU has %d SMs; give fewer, or 0 for all",
                      run->options->sample, d->sms);
    }
    if (run->options->sample < 0 && timed->sample != 0) {
        int enough = fewest_sms(d, head_bytes(timed, run->backward));
        if (enough > timed->sample) timed->sample = enough;
    }
    if (timed->sample >= d->sms) timed->sample = 0;
    if (run->same) run->checked.sample = timed->sample;
    return true;
}

bool sample_too_small(const Run *run, double *share, double *needed, int *enough) {
    const Device *d = run->device;
    if (d->softgpu == NULL || d->l2_bytes == 0 || run->timed.sample == 0) return false;
    *share = (double)d->l2_bytes * run->timed.sample / d->sms;
    *needed = head_bytes(&run->timed, run->backward);
    *enough = fewest_sms(d, *needed);
    return *enough != 0 && *share < *needed;
}
