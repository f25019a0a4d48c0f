/* SPDX-License-Identifier: Apache-2.0
 * An outsider's C program: a job of one rank, without mpirun. */
#include <ronde/ronde.h>
#include <stdio.h>
#include <string.h>

static int fail(const char* what, const ronde_error* error) {
  fprintf(stderr, "%s: %s\n", what, error != NULL ? ronde_error_message(error) : "no error text");
  return 1;
}

int main(void) {
  ronde_engine_options options;
  ronde_engine* engine = NULL;
  ronde_error* error = NULL;
  ronde_work* work = NULL;
  ronde_request request;
  const int64_t shape[1] = {4};
  const float expected[4] = {3.0F, 6.0F, 9.0F, 12.0F};
  float values[4] = {1.0F, 2.0F, 3.0F, 4.0F};

  ronde_engine_options_init(&options);
  if (ronde_engine_open(&options, &engine, &error) != RONDE_OK) return fail("open", error);
  if (ronde_size(engine) != 1 || ronde_rank(engine) != 0) return fail("not a job of one", NULL);

  ronde_request_init(&request);
  request.name = "gradient";
  request.output = values;
  request.shape = shape;
  request.dimensions = 1;
  request.dtype = RONDE_F32;
  request.op = RONDE_SUM;
  request.prescale = 3.0;
  if (ronde_allreduce_async(engine, &request, &work, &error) != RONDE_OK) {
    return fail("allreduce", error);
  }
  if (ronde_work_wait(work, &error) != RONDE_OK) return fail("wait", error);
  ronde_work_release(work);
  if (memcmp(values, expected, sizeof values) != 0) return fail("wrong values", NULL);

  /* An error is a status and a text that names the tensor. */
  request.dimensions = -1;
  if (ronde_allreduce(engine, &request, &error) != RONDE_INVALID_ARGUMENT || error == NULL ||
      strstr(ronde_error_message(error), "gradient") == NULL) {
    return fail("a bad request must be refused with the tensor's name", error);
  }
  ronde_error_release(error);
  error = NULL;

  if (ronde_engine_close(engine, &error) != RONDE_OK) return fail("close", error);
  printf("ronde %s from C: a job of one rank works\n", ronde_version());
  return 0;
}
