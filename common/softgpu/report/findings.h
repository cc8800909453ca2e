// Findings for people (text on stderr) and for programs (JSON).
#ifndef SOFTGPU_REPORT_FINDINGS_H
#define SOFTGPU_REPORT_FINDINGS_H

#include <stdio.h>

#include "softgpu/check/findings.h"

// Writes one finding as text, as a person reads it.
void finding_print(FILE *out, const Finding *finding);

// At the end of the process: what was met again after it was printed; the JSON report, if asked for
// (SOFTGPU_REPORT=json; to SOFTGPU_REPORT_FILE or stderr). False: the report can't be written, as it
// says on stderr, and nothing of it is left.
bool findings_finish(const Settings *settings);

// Findings since the last call as a JSON array. Owned here, valid until the next call.
const char *findings_json(void);

#endif
