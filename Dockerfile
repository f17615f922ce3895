# The service, as `policy serve` starts it. Non-root; it runs on a read-only root file system.
FROM python:3.12-slim AS build
WORKDIR /src
COPY . .
RUN python -m venv /opt/policy && /opt/policy/bin/pip install --no-cache-dir '.[server,live,otel]'

FROM python:3.12-slim
COPY --from=build /opt/policy /opt/policy
ENV PATH=/opt/policy/bin:$PATH PYTHONDONTWRITEBYTECODE=1
RUN mkdir /var/lib/policy && chown 65532:65532 /var/lib/policy
USER 65532:65532
WORKDIR /var/lib/policy
VOLUME /var/lib/policy
EXPOSE 8787
ENTRYPOINT ["policy"]
# Beside tokens that are mounted to be read nothing could be noted of their use.
CMD ["serve", "--host", "0.0.0.0", "--tokens", "/etc/policy/tokens/tokens.json", \
     "--token-uses", "/var/lib/policy/token-uses.json"]
