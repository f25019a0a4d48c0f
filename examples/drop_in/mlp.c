/* SPDX-License-Identifier: Apache-2.0
 * A trainer in C whose parameters are one array of floats, and their gradients another: a small
 * network learns which of two spirals a point is on. */
#include <math.h>
#include <stdio.h>

enum { HIDDEN = 32, PARAMETERS = HIDDEN * 4 + 1, POINTS = 512, BATCH = 64, STEPS = 400 };

static float points[POINTS][2], labels[POINTS];
static float parameters[PARAMETERS], gradients[PARAMETERS], momentum[PARAMETERS];

static float uniform(unsigned* state) { /* in [-1, 1) */
  *state = *state * 1664525U + 1013904223U;
  return (float)(*state >> 8) / 8388608.0F - 1.0F;
}

/* Adds the gradients of one point, divided by the points of the batch; returns its loss. */
static float learn(const float* point, float label, int count) {
  const float* in =
      parameters; /* two weights and a bias of each hidden unit, then what it counts for */
  const float* out = parameters + HIDDEN * 3;
  float* d_in = gradients;
  float* d_out = gradients + HIDDEN * 3;
  float hidden[HIDDEN], sum = out[HIDDEN];
  for (int h = 0; h < HIDDEN; ++h) {
    hidden[h] = tanhf(in[3 * h] * point[0] + in[3 * h + 1] * point[1] + in[3 * h + 2]);
    sum += out[h] * hidden[h];
  }
  const float guess = 1.0F / (1.0F + expf(-sum));
  const float d_sum = (guess - label) / (float)count;
  d_out[HIDDEN] += d_sum;
  for (int h = 0; h < HIDDEN; ++h) {
    const float d_hidden = d_sum * out[h] * (1.0F - hidden[h] * hidden[h]);
    d_out[h] += d_sum * hidden[h];
    d_in[3 * h] += d_hidden * point[0];
    d_in[3 * h + 1] += d_hidden * point[1];
    d_in[3 * h + 2] += d_hidden;
  }
  return -logf(label > 0.5F ? guess : 1.0F - guess) / (float)count;
}

static void update(void) {
  for (int i = 0; i < PARAMETERS; ++i) {
    momentum[i] = 0.9F * momentum[i] + gradients[i];
    parameters[i] -= 0.1F * momentum[i];
    gradients[i] = 0.0F;
  }
}

int main(void) {
  unsigned state = 1;
  const int batch = BATCH, first = 0;
  for (int i = 0; i < POINTS; ++i) {
    const float turn = 0.5F + 5.0F * (float)(i / 2) / (POINTS / 2);
    labels[i] = (float)(i % 2);
    points[i][0] = turn / 5.0F * cosf(turn + 3.1416F * labels[i]) + 0.02F * uniform(&state);
    points[i][1] = turn / 5.0F * sinf(turn + 3.1416F * labels[i]) + 0.02F * uniform(&state);
  }
  for (int i = 0; i < PARAMETERS; ++i) parameters[i] = uniform(&state);
  for (int step = 0; step < STEPS; ++step) {
    float loss = 0.0F;
    for (int i = first; i < first + batch; ++i) {
      const int sample = (step * BATCH + i) * 37 % POINTS;
      loss += learn(points[sample], labels[sample], batch);
    }
    update();
    if (step % 50 == 49) printf("step %d loss %.5f\n", step + 1, loss);
  }
  return 0;
}
