// What ./run --schedule-study prints and writes.
#ifndef SCHEDULE_REPORT_H
#define SCHEDULE_REPORT_H

#include "harness/study.h"

// Runs all schedules of schedule_study.h on the request's problem, before it, where the person has
// chosen none, on the lecture's example; prints a table of each, writes a CSV of tiles and a picture.
// False: the message says what is impossible or could not be written.
bool schedule_report(const StudyRequest *request, Message *message);

#endif
