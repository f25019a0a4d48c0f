// SPDX-License-Identifier: Apache-2.0
// The C++ facade of Ronde: header-only, over the C ABI of ronde.h.
//
//   ronde::Engine engine;    // joins the MPI job; alone it is a job of one
//   ronde::Work work = engine.allreduce("fc1/weight", std::span(gradient), ronde::average);
//   work.wait();             // throws ronde::Error
//
// What is said here holds for every class; the classes name what differs.
//
// Ownership: a class owns the handle of the C ABI that it was made with and releases it in its
// destructor, which never throws. Tensors stay the caller's: from submission until the operation is
// done their memory belongs to the engine. Names and options are copied.
//
// Units: spans and splits count elements, timeouts are std::chrono durations.
//
// Errors: a call that fails throws ronde::Error, whose status() is one of the codes that ronde.h
// names at the function behind it; "submit codes" and "work codes" are explained there. A call on
// an object that holds nothing (an empty Work, a closed Engine) throws std::logic_error.
//
// Thread safety: each class says it.
#pragma once

#if __cplusplus < 202002L
#error "Ronde's C++ facade needs C++20: compile with -std=c++20, or use the C ABI, <ronde/ronde.h>"
#else

#include <ronde/ronde.h>

#include <ronde/allocator.hpp>
#include <ronde/averager.hpp>
#include <ronde/averager_options.hpp>
#include <ronde/buffer.hpp>
#include <ronde/dtype.hpp>
#include <ronde/engine.hpp>
#include <ronde/local_job.hpp>
#include <ronde/messages.hpp>
#include <ronde/prepared.hpp>
#include <ronde/range.hpp>
#include <ronde/requests.hpp>
#include <ronde/store.hpp>
#include <ronde/timeline.hpp>
#include <ronde/types.hpp>
#include <ronde/work.hpp>

#endif
