/* SPDX-License-Identifier: Apache-2.0
 * R2: a program that was compiled when each struct of the C ABI had one field less. What lies
 * behind its structs is its own. */
#include <ronde/ronde.h>
#include <stdio.h>
#include <string.h>

enum { BEHIND = 32 };
static const unsigned char mark = 0xAB;

static int is_whole(const unsigned char* behind, const char* what) {
  for (int i = 0; i < BEHIND; ++i) {
    if (behind[i] != mark) {
      fprintf(stderr, "%s wrote behind the struct (byte %d)\n", what, i);
      return 0;
    }
  }
  return 1;
}

static int fail(const char* what, const ronde_error* error) {
  fprintf(stderr, "%s: %s\n", what, ronde_error_message(error));
  return 1;
}

int main(void) {
  struct {
    ronde_engine_options options;
    unsigned char behind[BEHIND];
  } opening;
  struct {
    ronde_request requests[2];
    unsigned char behind[BEHIND];
  } group;
  struct {
    ronde_statistics statistics;
    unsigned char behind[BEHIND];
  } counted;
  ronde_engine* engine = NULL;
  ronde_error* error = NULL;
  const int64_t length = 3;
  float values[2][3] = {{1, 2, 3}, {4, 5, 6}};
  const char* const names[2] = {"first", "second"};
  int whole;

  memset(&opening, mark, sizeof opening);
  ronde_engine_options_init(&opening.options);
  whole = is_whole(opening.behind, "ronde_engine_options_init");
  if (opening.options.struct_size != sizeof opening.options) return fail("another size", NULL);
  if (ronde_engine_open(&opening.options, &engine, &error) != RONDE_OK) return fail("open", error);

  /* The requests of a group lie as far from each other as this program's structs are long. */
  memset(&group, mark, sizeof group);
  for (int i = 0; i < 2; ++i) {
    ronde_request* request = &group.requests[i];
    ronde_request_init(request);
    request->name = names[i];
    request->output = values[i];
    request->shape = &length;
    request->dimensions = 1;
    request->op = RONDE_SUM;
    request->postscale = 2;
  }
  whole = is_whole(group.behind, "ronde_request_init") && whole;
  if (ronde_grouped_allreduce(engine, group.requests, 2, &error) != RONDE_OK) {
    return fail("grouped allreduce", error);
  }
  if (values[0][2] != 6 || values[1][2] != 12) return fail("wrong values", NULL);

  memset(&counted, mark, sizeof counted);
  ronde_statistics_init(&counted.statistics);
  whole = is_whole(counted.behind, "ronde_statistics_init") && whole;
  if (ronde_engine_statistics(engine, &counted.statistics, &error) != RONDE_OK) {
    return fail("statistics", error);
  }
  whole = is_whole(counted.behind, "ronde_engine_statistics") && whole;
  if (counted.statistics.tensors != 2) return fail("two tensors were reduced", NULL);

  if (ronde_engine_close(engine, &error) != RONDE_OK) return fail("close", error);
  return whole ? 0 : 1;
}
