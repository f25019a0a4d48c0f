// SPDX-License-Identifier: Apache-2.0
// The C++ facade of Ronde: header-only, over the C ABI of ronde.h. Errors are exceptions here.
//
//   ronde::Engine engine;    // joins the MPI job; alone it is a job of one
//   ronde::Work work = engine.allreduce("fc1/weight", std::span(gradient), ronde::average);
//   work.wait();             // throws ronde::Error
//
// Thread safety: an Engine may be used from any number of threads at once (not its destructor); a
// Work by one thread at a time.
#pragma once

#include <ronde/ronde.h>

#include <ronde/averager.hpp>
#include <ronde/buffer.hpp>
#include <ronde/engine.hpp>
#include <ronde/requests.hpp>
#include <ronde/types.hpp>
#include <ronde/work.hpp>
