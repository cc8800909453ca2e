// The head_dims that this chapter was built with.
#ifndef BUILT_H
#define BUILT_H

extern const int built_head_dims[]; // rising, 0 at the end

#endif
