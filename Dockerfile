# A server for one model, which is mounted at /model:
#   docker build -t bough . && docker run -p 8000:8000 -v ./runs/first/model:/model:ro bough
FROM python:3.11-slim
WORKDIR /bough
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src src
# A compiler, for the kernels that bough makes at first use: whichever the image's Debian has.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
# The CPU build of torch: the usual one brings gigabytes for GPUs.
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu torch==2.13.0 \
    && pip install --no-cache-dir --constraint constraints.txt '.[serve]' \
    && useradd --uid 1000 --create-home bough
USER 1000
EXPOSE 8000
HEALTHCHECK CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health', timeout=5)"]
ENTRYPOINT ["bough", "serve", "/model", "--host", "0.0.0.0"]
