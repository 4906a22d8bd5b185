"""cnorm.sklearn.Whitening: scikit-learn's own checks, batches that add up, the inverse, a pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cnorm
import oracle
from test_whiten import METHODS, mixed

sklearn_whitening = pytest.importorskip("cnorm.sklearn", reason="scikit-learn is not installed")
Whitening = sklearn_whitening.Whitening


@pytest.mark.parametrize("method", METHODS)
def test_scikit_learns_checks(method: str) -> None:
    from sklearn.utils.estimator_checks import check_estimator

    results = check_estimator(Whitening(method), on_skip=None, on_fail=None)
    assert len(results) > 30
    failed = [f"{r['check_name']}: {r['exception']!r}" for r in results if r["status"] == "failed"]
    assert not failed


@pytest.mark.parametrize("method", METHODS)
def test_it_is_whiten(method: str, dtype: Any) -> None:
    x = mixed((300, 7), 1, dtype, 3)
    y = Whitening(method).fit_transform(x)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, cnorm.whiten(x, method=method), rtol=0, atol=100 * oracle.unit(dtype))


@pytest.mark.parametrize("method", METHODS)
def test_the_inverse(method: str, dtype: Any) -> None:
    x = mixed((300, 7), 1, dtype, 3)
    whitening = Whitening(method, eps=0.1).fit(x)
    back = whitening.inverse_transform(whitening.transform(x))
    assert back.dtype == dtype
    np.testing.assert_allclose(back, x, rtol=0, atol=300 * oracle.unit(dtype))


def test_the_inverse_of_a_singular_matrix_is_exact_on_the_data() -> None:
    x = mixed((5, 8), 1, np.float64)
    whitening = Whitening(eps=0).fit(x)
    np.testing.assert_allclose(whitening.inverse_transform(whitening.transform(x)), x, rtol=0, atol=1e-12)


def test_batches_add_up() -> None:
    x = mixed((700, 6), 1, np.float64, 1e4)
    whole, parts = Whitening().fit(x), Whitening()
    for some in (slice(0, 1), slice(1, 300), slice(300, 302), slice(302, None)):
        parts.partial_fit(x[some])
    assert parts.n_samples_seen_ == 700
    np.testing.assert_allclose(parts.mean_, whole.mean_, rtol=1e-15)
    np.testing.assert_allclose(parts.covariance_, whole.covariance_, rtol=1e-11, atol=1e-11)
    parts.fit(x[:50])
    assert parts.n_samples_seen_ == 50


def test_in_a_pipeline() -> None:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x = mixed((200, 5), 1, np.float64)
    y = make_pipeline(StandardScaler(), Whitening("cholesky", eps=0)).fit_transform(x)
    np.testing.assert_allclose(y.T @ y / 200, np.eye(5), atol=1e-12)
    names = Whitening().fit(x).get_feature_names_out()
    assert list(names) == [f"whitening{i}" for i in range(5)]


def test_wrong_parameters() -> None:
    x = mixed((20, 3), 1, np.float64)
    for name, value in (("method", "ica"), ("eps", -1.0), ("n_iterations", 0)):
        with pytest.raises(ValueError, match=name):
            Whitening(**{name: value}).fit(x)
