/* SPDX-License-Identifier: Apache-2.0
 * The least that a trainer in C needs: every rank has a gradient of its own, and all of them
 * average it. Built with `cc -std=c11 c_average.c $(pkg-config --cflags --libs ronde)`, started
 * with ronderun -np 2 ./c_average, or alone. */
#include <ronde/ronde.h>
#include <stdio.h>

/* Says what went wrong in one line: what, where, what to do. */
static int fail(ronde_error* error) {
  fprintf(stderr, "c_average: %s\n", ronde_error_message(error));
  ronde_error_release(error);
  return 1;
}

int main(void) {
  ronde_engine* engine = NULL; /* joins the job; alone: a job of one */
  ronde_error* error = NULL;
  float gradient[1000];

  if (ronde_engine_open(NULL, &engine, &error) != RONDE_OK) return fail(error);
  for (int i = 0; i < 1000; ++i) { /* your backward pass */
    gradient[i] = (float)(ronde_rank(engine) * i);
  }
  if (ronde_allreduce_flat(engine, "gradient", gradient, 1000, RONDE_F32, RONDE_AVERAGE, &error) !=
      RONDE_OK) {
    return fail(error); /* leaving without close ends the job of the other ranks too */
  }
  if (ronde_rank(engine) == 0) {
    printf("ranks=%d last=%.1f\n", (int)ronde_size(engine), gradient[999]);
  }
  if (ronde_engine_close(engine, &error) != RONDE_OK) return fail(error);
  return 0;
}
