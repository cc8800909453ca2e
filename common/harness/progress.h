// A progress bar on standard error: only on a terminal, only when something takes over two seconds.
#ifndef PROGRESS_H
#define PROGRESS_H

void progress_start(int units);        // how many things there are to do
void progress_next(const char *doing); // the one before is done, this begins
void progress_pause(void);             // removes the bar; what is printed now stays readable
void progress_resume(void);            // it may come back
void progress_stop(void);              // removes the bar

#endif
