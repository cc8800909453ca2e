// The run as comma-separated values, one line for each pass of a step. The sizes are those of the
// timed problem, or of the checked one if nothing was timed. What was not measured is empty.
#include "harness/report.h"

#include <math.h>

#include "harness/convert.h"
#include "harness/mods.h"

void write_csv_header(FILE *to) {
    fputs(
        "chapter,step,step_chapter,pass,exhibit,ok,device,gpu,time_kind,dtype,batch,heads,kv_heads,"
        "seqlen_q,seqlen_k,head_dim,causal,window_left,window_right,softcap,scale,seed,sms,sample,"
        "time_us,tflops,peak_fraction,flops,hbm_read_bytes,hbm_write_bytes,l2_read_bytes,"
        "workspace_bytes,speedup_over_naive,speedup_over_previous,o_max_error,o_limit,o_rms_error,"
        "lse_max_error,dq_max_error,dk_max_error,dv_max_error,total_q,total_k,sink,hbm_fraction,"
        "splits,page_size,new_keys,rotary_dim,fp8_cache,score_mod,mask_mod\n",
        to);
}

static void value(FILE *to, double v) {
    if (isfinite(v))
        fprintf(to, v == floor(v) && fabs(v) < 1e15 ? ",%.0f" : ",%.9g", v);
    else
        fputc(',', to);
}

void write_csv(FILE *to, const Run *run) {
    const Device *d = run->device;
    bool timed = !run->options->check_only;
    const Problem *p = timed ? &run->timed : &run->checked;
    for (int i = 0; i < run->count; i++) {
        const StepResult *r = &run->results[i];
        if (r->refused[0] != 0) continue;
        const char *ok = r->error[0] != 0 || r->findings != NULL ? "false"
                         : r->ok < 0                             ? ""
                         : r->ok == 1                            ? "true"
                                                                 : "false";
        fprintf(to, "%d,%s,%d,%s,%s,%s,%s,\"%s\",%s,%s,%d,%d,%d,%lld,%lld,%d,%s,%lld,%lld",
                run->chapter->number, r->step->name, r->step->chapter,
                r->backward ? "backward" : "forward", r->step->exhibit ? "true" : "false", ok,
                d->softgpu != NULL ? "softgpu" : "gpu", d->name, timed ? run->time_kind : "",
                problem_dtype(p), p->batch, p->heads, p->kv_heads, (long long)p->seqlen_q,
                (long long)p->seqlen_k, p->head_dim, p->causal ? "true" : "false",
                (long long)p->window_left, (long long)p->window_right);
        value(to, p->softcap);
        value(to, p->scale);
        fprintf(to, ",%llu,%d,%d", (unsigned long long)p->seed, d->sms, p->sample);
        const double figures[] = {r->time_us,
                                  r->tflops,
                                  r->peak_fraction,
                                  r->flops,
                                  r->hbm_read_bytes,
                                  r->hbm_write_bytes,
                                  r->l2_read_bytes,
                                  r->workspace_bytes,
                                  r->speedup_over_naive,
                                  r->speedup_over_previous};
        for (size_t f = 0; f < sizeof figures / sizeof *figures; f++) value(to, figures[f]);
        const TensorCheck *t = r->tensors;
        value(to, t[TENSOR_O].measured ? t[TENSOR_O].max : NAN);
        value(to, t[TENSOR_O].measured ? t[TENSOR_O].limit : NAN);
        value(to, t[TENSOR_O].measured ? t[TENSOR_O].rms : NAN);
        value(to, t[TENSOR_LSE].measured ? t[TENSOR_LSE].max : NAN);
        value(to, t[TENSOR_DQ].measured ? t[TENSOR_DQ].max : NAN);
        value(to, t[TENSOR_DK].measured ? t[TENSOR_DK].max : NAN);
        value(to, t[TENSOR_DV].measured ? t[TENSOR_DV].max : NAN);
        fprintf(to, ",%lld,%lld,%s", (long long)total_queries(p), (long long)total_keys(p),
                p->has_sink ? "true" : "false");
        value(to, r->hbm_fraction);
        char score_mod[64], mask_mod[64];
        fprintf(to, ",%d,%d,%d,%d,%s,%s,%s\n", p->splits, p->cache.page_size, p->cache.new_keys,
                p->cache.rotary_dim, p->cache.fp8 ? "true" : "false",
                score_mod_text(p, score_mod, sizeof score_mod),
                mask_mod_text(p, mask_mod, sizeof mask_mod));
    }
}
