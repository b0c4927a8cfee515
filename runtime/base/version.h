/* runtime/base/version.h - the one place that says which Yoke this is; CMake reads it from here. */
#ifndef YK_RUNTIME_BASE_VERSION_H
#define YK_RUNTIME_BASE_VERSION_H

#define YK_VERSION "0.1.0"

#endif
