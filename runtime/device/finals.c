/* runtime/device/finals.c - see finals.h. */
#include "runtime/device/finals.h"

#include "runtime/base/status.h"

float yk_finals_bar(float first_ms, float best_ms, float lead)
{
    float near = best_ms * YK_FINALS_NEAR, ahead = first_ms * (1 - lead);
    return lead > 0 && ahead < near ? ahead : near;
}

void yk_finals_add(yk_finalist *f, float ms)
{
    YK_CHECK(f->n < YK_FINALS_ROUNDS);
    int at = f->n++;
    for (; at > 0 && f->ms[at - 1] > ms; at--) f->ms[at] = f->ms[at - 1];
    f->ms[at] = ms;
}

float yk_finals_middle(const yk_finalist *f)
{
    return (f->ms[(f->n - 1) / 2] + f->ms[f->n / 2]) / 2;
}

static float noise(const yk_finalist *f)
{
    return (f->ms[f->n - 1] - f->ms[0]) / (float)f->n;
}

static const yk_finalist *leader(const yk_finals *f)
{
    const yk_finalist *best = &f->who[0];
    for (int i = 1; i < f->n; i++)
        if (yk_finals_middle(&f->who[i]) < yk_finals_middle(best)) best = &f->who[i];
    return best;
}

int yk_finals_thin(yk_finals *f)
{
    const yk_finalist *best = leader(f);
    int going_on = 0;
    for (int i = 0; i < f->n; i++) {
        if (f->who[i].ms[0] > best->ms[best->n - 1]) f->who[i].out = true;
        going_on += !f->who[i].out;
    }
    return going_on;
}

int yk_finals_verdict(const yk_finals *f)
{
    const yk_finalist *first = &f->who[0];
    int best = 0;
    for (int i = 1; i < f->n; i++) {
        const yk_finalist *one = &f->who[i];
        float gain = yk_finals_middle(first) - yk_finals_middle(one);
        if (gain > noise(first) + noise(one) &&
            yk_finals_middle(one) < yk_finals_middle(&f->who[best]))
            best = i;
    }
    return best;
}
