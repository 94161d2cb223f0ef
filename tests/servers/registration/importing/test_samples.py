"""185 configurations from READMEs and documents are read, each as its sample says."""

from pathlib import Path

import pytest

from servers.registration.importing.document import read
from servers.registration.importing.entries import parse
from tests.servers.registration.importing.samples import Sample, reading, samples

pytestmark = pytest.mark.django_db

SAMPLES = list(samples())
#: refused with instructions: packages that mcpadmin cannot start
NOT_STARTED = {"a bundle", "a package that serves HTTP", "an unknown kind of package"}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.file}-{sample.title}".replace(" ", "_"))
def test_a_published_configuration_is_read_as_its_client_reads_it(sample: Sample) -> None:
    assert reading(read(sample.text)) == sample.expected


def test_almost_every_published_configuration_can_be_registered(capsys: pytest.CaptureFixture[str]) -> None:
    read_samples = [sample for sample in SAMPLES if not all("| refused |" in line for line in sample.expected)]
    with capsys.disabled():
        print(f"\n{len(read_samples)} of {len(SAMPLES)} published configurations are read")
    assert len(SAMPLES) >= 185
    assert {sample.title for sample in SAMPLES} - {sample.title for sample in read_samples} == NOT_STARTED


def test_of_several_clients_configurations_the_first_is_read_and_the_others_are_counted() -> None:
    (sample,) = [sample for sample in SAMPLES if sample.title == "code blocks of several clients"]
    assert read(sample.text).remarks == (
        "2 more configurations in the text were not read. To import another one, paste it separately.",
    )


def test_what_is_part_of_goose_is_named_and_left_out() -> None:
    (sample,) = [sample for sample in SAMPLES if sample.title == "Goose beside its own"]
    assert read(sample.text).remarks == ("Skipped because they are built into Goose: developer.",)


def test_optional_variables_of_the_registry_are_named() -> None:
    (sample,) = [sample for sample in SAMPLES if sample.title == "npm"]
    document = read(sample.text)
    entry = parse(document, *document.servers[0])
    assert entry.notes == ("Optional and not set: ACME_PROXY.",)
    (need,) = entry.needs
    assert (need.label, need.secret) == ("API token", True)


def test_choices_of_an_input_are_offered() -> None:
    (sample,) = [sample for sample in SAMPLES if sample.title == "VS Code with a choice"]
    document = read(sample.text)
    (need,) = parse(document, *document.servers[0]).needs
    assert (need.label, need.default, need.choices) == ("Region", "eu", ("eu", "us"))


def test_no_sample_names_a_place_of_this_machine() -> None:
    assert all("/work/" not in path.read_text() for path in (Path(__file__).parent / "samples").glob("*.txt"))
