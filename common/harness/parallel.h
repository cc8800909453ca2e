// A loop whose iterations are independent, spread over host threads.
#ifndef PARALLEL_H
#define PARALLEL_H

#include <stdint.h>

// Cores that this process may use, or what parallel_set_threads said.
int parallel_threads(void);
void parallel_set_threads(int threads); // 0 = cores

// Calls work(context, worker, index) once for each index of 0 … count-1; worker is 0 …
// parallel_threads()-1 and no two calls with the same worker run at once. Which worker gets which
// index is not fixed: results must not depend on it.
void parallel_for(int64_t count, void (*work)(void *context, int worker, int64_t index),
                  void *context);

#endif
